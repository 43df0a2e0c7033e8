package layout

// Suffixes of keys that are derived from another key: the numbers of its entries, their times, and
// which of them are padding.
const (
	LengthsSuffix = "_lengths"
	TimesSuffix   = "_times"
	PadSuffix     = "_is_pad"
)

// DimsSuffix ends the key of the mask that marks the padded numbers of a row.
const DimsSuffix = "_dim_is_pad"
