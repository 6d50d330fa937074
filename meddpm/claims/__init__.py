"""What the paper claims, held against what was measured: the claims and their rules are data, in claims.yaml."""
