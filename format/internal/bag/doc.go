// Package bag makes a dataset of recordings: messages of many topics, each with its own times.
package bag
