"""What `ToolCallingAdvisor` is made of."""
