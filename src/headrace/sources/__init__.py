"""Where changes come from: schema, version at a moment, changes between versions, snapshots."""
