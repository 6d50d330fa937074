"""What a person looks at: the page of a study, the page of a dataset's cases, tables in a terminal."""
