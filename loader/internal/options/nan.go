package options

// OnNaN selects the treatment of numbers that are NaN or infinite.
type OnNaN string

const (
	NaNError OnNaN = "error" // the episode is bad; default
	NaNMask  OnNaN = "mask"  // its row is a masked row of zeros
	NaNAllow OnNaN = "allow" // it is delivered; default with Compat LeRobot
)
