"""What a rank holds: live storages by kind, over a recorded training step."""
