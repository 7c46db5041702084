"""One page about one or many stores, made of the documents of other commands: it opens anywhere."""
