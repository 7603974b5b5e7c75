"""Loop code: terms and steps as structured code over scalars, and its passes."""
