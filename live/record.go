package live

// recorder writes what a policy saw.
type recorder struct{}

func (r *recorder) addTick(int64) error                           { return nil }
func (r *recorder) addSample(string, int64, int64, *Sample) error { return nil }
func (r *recorder) close() error                                  { return nil }
