"""Files of weights: which formats there are, what one holds, which network it fits, how it becomes another."""
