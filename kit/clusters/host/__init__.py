"""One process on each host: it forks the ranks, waits on them, kills them, and passes messages on."""
