"""JADE from Python: what the verbs of the command line do, as functions. `import jade` brings them."""
