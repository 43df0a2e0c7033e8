package plan

import (
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// addConstants adds the columns of the constants of the source, in the order of their keys.
func (src *Source) addConstants() error {
	for _, key := range options.Keys(src.constants) {
		value := src.constants[key]
		row, err := value.Row()
		if err != nil {
			return err
		}
		reserved := append(column.GeneratedKeys(), "task", "")
		if len(value.Numbers) == 0 || src.isKnownKey(key) || src.Column(key) != nil ||
			slices.Contains(reserved, key) {
			return options.Misuse("constants", "a number under a key that the source lacks", key)
		}
		c := &column.ConstantColumn{Row: row}
		c.Column = &column.Column{Key: key, Kind: c}
		src.appendComputed(c.Column, value.DType(), len(value.Numbers))
		if !value.IsList {
			c.Feature.Shape = nil
		}
	}
	return nil
}
