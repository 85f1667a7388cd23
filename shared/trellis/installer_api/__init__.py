"""The contract between provisioner and node_installer; standard library only, its image copies this folder."""
