package cuda

import "sort"

// Timing is the time of a call in a graph, in microseconds.
type Timing struct {
	Median, Best float64
	Calls        int // in one graph
	Rounds       int
}

// Time captures f called `calls` times, with i = 0, 1, 2 …, and replays the graph `rounds` times.
// It returns microseconds per call. If buffers rotate by i through more than four times the L2
// cache, the result is a cold time. With the same buffers it is a hot time.
func (d *Device) Time(calls, rounds int, f func(i int, stream uintptr) error) (Timing, error) {
	stream, err := d.NewStream()
	if err != nil {
		return Timing{}, err
	}
	defer d.FreeStream(stream)
	graph, err := d.Capture(stream, func() error {
		for i := range calls {
			if err := f(i, stream); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Timing{}, err
	}
	defer graph.Free()
	return graph.time(stream, calls, rounds)
}

// time replays the graph rounds times. calls is the number of launches in the graph; times are per
// launch.
func (gr *Graph) time(stream uintptr, calls, rounds int) (Timing, error) {
	var all []float64
	for round := range rounds + 2 { // two to warm up
		us, err := gr.d.Elapsed(stream, func() error { return gr.Launch(stream) })
		if err != nil {
			return Timing{}, err
		}
		if round >= 2 {
			all = append(all, us/float64(calls))
		}
	}
	sort.Float64s(all)
	return Timing{Median: all[len(all)/2], Best: all[0], Calls: calls, Rounds: rounds}, nil
}
