"""What users put into `node_postprocessors=[...]`: each file holds one policy."""
