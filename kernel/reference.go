package kernel

// Reference is the pure-Go back end on one thread: what every other one is compared with. It has no state.
type Reference struct{}
