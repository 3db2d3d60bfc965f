"""Chat models, one provider a module. Import the module that you need: each needs its own extra."""
