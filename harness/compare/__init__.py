"""Two runs compared task by task, whether chance explains it, and gates on that."""
