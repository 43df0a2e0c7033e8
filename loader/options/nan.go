package options

// OnNaN selects the effect of numbers that are NaN or infinite.
type OnNaN string

const (
	NaNError OnNaN = "error" // the episode is bad; default
	NaNMask  OnNaN = "mask"  // the row becomes a masked row of zeros
	NaNAllow OnNaN = "allow" // the row is delivered; default with Compat LeRobot
)
