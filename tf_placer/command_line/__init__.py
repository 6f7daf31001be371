"""What the commands do, without their flags."""
