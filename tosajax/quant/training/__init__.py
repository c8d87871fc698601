"""Training: optimizers that suit scales, schedules, losses, and a loop."""
