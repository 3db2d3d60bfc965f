"""What `ChatClient` and `SyncChatClient` are made of: arguments, answers with a type, a thread with an event loop."""
