package robocache

// Version is the version of RoboCache: of the library, the command line and the Python package.
// Builds add the commit.
const Version = "0.1.0"
