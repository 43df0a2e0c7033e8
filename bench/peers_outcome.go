package bench

// Checks is what a runner of `bench peers` says of its work besides its speed.
type Checks struct {
	Epochs          int               `json:"epochs,omitempty"` // of the window
	FramesChecked   int64             `json:"frames_checked,omitempty"`
	WrongFrames     int64             `json:"wrong_frames,omitempty"`
	WorstDifference float64           `json:"worst_mean_difference,omitempty"` // of a delivered frame from the oracle's, of 255
	CoverageMin     int               `json:"coverage_min,omitempty"`
	CoverageMax     int               `json:"coverage_max,omitempty"` // 0: the runner has no order
	NeighbourShare  float64           `json:"neighbour_share,omitempty"`
	Versions        map[string]string `json:"versions,omitempty"`
}

// coverage is how often the samples came an epoch: least and most; 0, 0 where the runner has no order.
func (o *Outcome) coverage() (low, high int) { return o.CoverageMin, o.CoverageMax }
