"""One function a rule: files in, files out, its settings as the JSON string that the rule was planned with."""
