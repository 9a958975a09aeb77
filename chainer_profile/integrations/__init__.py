"""What measures inside other programs: an extension of the Trainer, a notebook's magic."""
