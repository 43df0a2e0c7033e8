package kernel

// Mode states how a value between two samples is computed.
type Mode uint8

const (
	Linear Mode = iota
	Nearest
	Previous
	Next
	Slerp
	Angle
	Mean
	// the changes during a row's interval are summed (kernel.K24); only plans and Resample support
	// it
	ModeSum
)

// modeNames are the names of modes, in the order of their numbers.
var modeNames = enumNames{
	"align",
	"mode",
	[]string{"linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum"},
}

// String returns the name of the mode.
func (m Mode) String() string { return modeNames.nameOf(uint8(m)) }

// Computes reports whether the mode computes new values, instead of copying samples.
func (m Mode) Computes() bool { return m == Linear || m >= Slerp }

// ParseMode returns the mode with the given name.
func ParseMode(name string) (Mode, error) { return parseName[Mode](&modeNames, name) }

// MarshalText returns the name of the mode.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText sets m to the mode with the given name.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// Edge states which value a row outside the data or inside a gap gets. It never changes the
// validity.
type Edge uint8

const (
	Clamp Edge = iota // the sample at the edge; in a gap, the value of the mode
	Mask              // zero bits
	// linear and angle: the line through the two nearest distinct timestamps; other modes: as Clamp
	Extrapolate
	ErrorEdge // an error, and no output
)

// edgeNames are the names of edge policies, in the order of their numbers.
var edgeNames = enumNames{"align", "edge", []string{"clamp", "mask", "extrapolate", "error"}}

// String returns the name of the edge policy.
func (e Edge) String() string { return edgeNames.nameOf(uint8(e)) }

// MarshalText returns the name of the edge policy.
func (e Edge) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText sets e to the edge policy with the given name.
func (e *Edge) UnmarshalText(b []byte) (err error) {
	*e, err = parseName[Edge](&edgeNames, string(b))
	return err
}
