"""Bodies of the commands, without their flags."""
