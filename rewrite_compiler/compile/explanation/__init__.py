"""Why a plan is as it is."""
