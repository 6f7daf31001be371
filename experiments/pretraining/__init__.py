"""What policies are taught on before they ship, and how they are shown to know something."""
