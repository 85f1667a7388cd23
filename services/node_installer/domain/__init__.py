"""What an installation or removal has to do on a node. Pure."""
