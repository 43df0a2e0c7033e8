package kernel

// Mode says how a value between two samples is made.
type Mode uint8

const (
	Linear Mode = iota
	Nearest
	Previous
	Next
	Slerp
	Angle
	Mean
	ModeSum // the changes over a row's time, added up (K24); of plans and Resample alone
)

var modeNames = names{
	"align",
	"mode",
	[]string{"linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum"},
}

func (m Mode) String() string { return modeNames.of(uint8(m)) }

// Computes says whether the mode makes values that no sample has.
func (m Mode) Computes() bool { return m == Linear || m >= Slerp }

// ParseMode finds a mode by its name.
func ParseMode(name string) (Mode, error) { return parse[Mode](&modeNames, name) }

// MarshalText makes Mode a string in JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a mode.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// Edge says which value a row gets that lies outside the data or in a gap. It never changes the
// validity.
type Edge uint8

const (
	Clamp Edge = iota // the edge sample; in a gap what the mode gives
	Mask              // zero bits
	// linear and angle: the line through the two nearest distinct timestamps; else hold
	Extrapolate
	ErrorEdge // no output
)

var edgeNames = names{"align", "edge", []string{"clamp", "mask", "extrapolate", "error"}}

func (e Edge) String() string { return edgeNames.of(uint8(e)) }

// MarshalText makes Edge a string in JSON.
func (e Edge) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the name of an edge policy.
func (e *Edge) UnmarshalText(b []byte) (err error) {
	*e, err = parse[Edge](&edgeNames, string(b))
	return err
}
