# Install rules: a relocatable tree.
