"""The one door to openai: connections, errors and everything that does not depend on the form of answers."""
