package lerobot

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// pageLimit bounds a page and a dictionary that the doctor proves.
const pageLimit = 256 << 20

// pages proves the columns that nothing here reads: other readers open a file whole, or not at all. Of the tables of the metadata all, of
// the data where the caller wants it deep.
func (doc *doctor) pages(ctx context.Context) error {
	d := doc.d
	tables, _, err := store.Files(ctx, d.st, "meta", func(name string) bool { return strings.HasSuffix(name, ".parquet") })
	if errors.Is(err, robocache.ErrUnsupported) { // http: what metadata has by its names
		tables = []store.Entry{{Name: tasksParquet}}
		names, err := d.paths.numbered(ctx, "meta/episodes", episodesTemplate, ".parquet")
		if err != nil {
			return doc.unreadable(ctx, err, nil)
		}
		for _, n := range names {
			tables = append(tables, store.Entry{Name: n})
		}
	} else if err != nil {
		return err
	}
	for _, t := range tables {
		if err := doc.columns(ctx, t.Name); err != nil {
			return err
		}
	}
	for file := range d.tab.files() {
		if !doc.opt.Deep || doc.chosen != nil && !anyWanted(doc, d.tab.episodesOf(int32(file))) {
			continue
		}
		f, err := d.tab.footer(ctx, int32(file))
		if err != nil {
			if err := doc.unreadable(ctx, err, nil); err != nil {
				return err
			}
			continue
		}
		if err := doc.columns(ctx, f.name); err != nil {
			return err
		}
	}
	return nil
}

// columns proves every column of a Parquet file, page by page: one finding a column chunk.
func (doc *doctor) columns(ctx context.Context, name string) error {
	where := robocache.Where{"file": name}
	r, err := doc.d.openSmall(ctx, name)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil // opening has said so, where it is needed
	}
	if err != nil {
		return doc.unreadable(ctx, err, where)
	}
	defer r.Close()
	f, err := pq.Open(ctx, r, nil)
	if err != nil {
		return doc.unreadable(ctx, err, where)
	}
	if err := pq.CheckNames(f); err != nil {
		if err := doc.unreadable(ctx, err, where); err != nil {
			return err
		}
	}
	for g := range f.Groups {
		for _, leaf := range f.Leaves {
			err := pq.Check(ctx, r, f, g, leaf, pq.Limits{Bytes: pageLimit})
			if errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrResourceLimit) {
				doc.found(robocache.SeverityWarning, "not-examined", robocache.Where{"file": name, "row_group": g, "column": leaf.Name}, "", "%v", err)
				continue
			}
			if err != nil {
				if err := doc.unreadable(ctx, err, where); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
