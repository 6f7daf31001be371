"""What a person does first with several devices: the whole step on each, with a part of the batch."""
