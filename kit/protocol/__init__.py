"""What kernel, host agent, coordinator and ranks tell each other, and how it travels."""
