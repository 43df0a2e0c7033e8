package layout

// Suffixes of the keys that stand beside another: how many of its entries are of each sample, when they were, and which are padding.
const (
	LengthsSuffix = "_lengths"
	TimesSuffix   = "_times"
	PadSuffix     = "_is_pad"
)

// DimsSuffix ends the key of the mask that says which numbers of a row are padding.
const DimsSuffix = "_dim_is_pad"
