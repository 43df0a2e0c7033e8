package ros2

// Schema is a message type with all types that it is made of.
type Schema struct {
	Name string // "pkg/msg/Type"
	root *message
}

// ParseSchema reads a schema's text; encoding is "ros2msg" or "ros2idl". Missing, recursive and too deeply nested types are refused.
func ParseSchema(encoding, name, text string) (*Schema, error) {
	return parseSchema(encoding, name, text)
}

// KnownSchema gives the schema of a common type, for recordings that store none.
func KnownSchema(name string) (*Schema, bool) { return knownSchema(name) }

// SchemaText is the ros2msg text of a common type with all that it depends on, as an MCAP schema holds it.
func SchemaText(name string) (string, bool) { return schemaText(name) }
