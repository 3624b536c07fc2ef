"""What a person sees in a terminal or a notebook: a trace as a tree, an answer with what it rests on."""
