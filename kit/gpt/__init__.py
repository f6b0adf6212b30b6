"""The readable GPT that the labs train, and the text it is trained on."""
