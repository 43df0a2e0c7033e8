package robocache

// DType is the type of one element.
type DType uint8

const (
	InvalidDType DType = iota
	Bool               // one byte, 0 or 1
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	String // variable length, UTF-8
	JSON   // variable length, a JSON value (language columns)
)

var dtypeNames = [...]string{
	"invalid",
	"bool",
	"int8",
	"int16",
	"int32",
	"int64",
	"uint8",
	"uint16",
	"uint32",
	"uint64",
	"float16",
	"bfloat16",
	"float32",
	"float64",
	"string",
	"json",
}

var dtypeSizes = [...]int{0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 0, 0}

// String returns NumPy's name of the type.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return "invalid"
}

// MarshalText writes NumPy's name of the type.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads NumPy's name of a type. It returns ErrUnsupported for other names.
func (d *DType) UnmarshalText(b []byte) error {
	v, ok := ParseDType(string(b))
	if !ok {
		return Unsupported("", nil, "unsupported dtype: %s", string(b))
	}
	*d = v
	return nil
}

// Size returns the number of bytes of one element. It is 0 for types of variable length.
func (d DType) Size() int {
	if int(d) < len(dtypeSizes) {
		return dtypeSizes[d]
	}
	return 0
}

// Float reports whether d is a floating-point type.
func (d DType) Float() bool { return d >= Float16 && d <= Float64 }

// Integer reports whether d is an integer type. Bool is not.
func (d DType) Integer() bool { return d >= Int8 && d <= Uint64 }

// ParseDType returns the type with NumPy's name, and whether there is one.
func ParseDType(name string) (DType, bool) {
	for i, n := range dtypeNames {
		if i > 0 && n == name {
			return DType(i), true
		}
	}
	return InvalidDType, false
}
