"""Who is told what happens: the structured log, and the actors named in `notify`."""
