"""The course that policies are taught on before they ship."""
