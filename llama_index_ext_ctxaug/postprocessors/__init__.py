"""The postprocessors for `node_postprocessors=[...]`: each file holds one policy."""
