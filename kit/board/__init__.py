"""The class board: where everybody is during a workshop, told by those who wish to tell it."""
