exports.triple = (number) => 3 * number;
