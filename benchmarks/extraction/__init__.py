"""Page text: its speed beside trafilatura's (`speed`), and how much of what a reader sees arrives (`words`)."""
