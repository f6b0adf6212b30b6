"""Slow links between ranks: a throttle on real messages, and what is noted exactly because it holds them back."""
