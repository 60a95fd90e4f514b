"""Ways in and out: each channel brings text to turns and carries replies and questions back."""
